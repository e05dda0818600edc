__all__ = ['ttypes', 'constants', 'ConsumerService']
